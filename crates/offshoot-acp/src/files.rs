//! Text files that an agent reads and writes through us, below its folder and nowhere else.

use std::path::{Path, PathBuf};

use agent_client_protocol::Error;
use serde_json::{Value, json};

/// How large a file may be that is read or written (16 MiB).
const LIMIT: u64 = 16 * 1024 * 1024;

fn refused(what: impl std::fmt::Display) -> Error {
    let mut error = Error::invalid_params();
    error.message = what.to_string();
    error
}

fn path_in(params: &Value) -> Result<PathBuf, Error> {
    let path = params.get("path").and_then(Value::as_str);
    let path = PathBuf::from(path.ok_or_else(|| refused("expected `path`, an absolute path"))?);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(refused("expected an absolute path"))
    }
}

/// The path without links, if it is below the folder.
async fn inside(folder: &Path, path: &Path) -> Result<PathBuf, Error> {
    let folder = tokio::fs::canonicalize(folder).await.map_err(refused)?;
    let found = tokio::fs::canonicalize(path).await;
    let real = found.map_err(|error| refused(format_args!("{}: {error}", path.display())))?;
    if real.starts_with(&folder) {
        Ok(real)
    } else {
        let (path, folder) = (path.display(), folder.display());
        Err(refused(format_args!("{path} is not below {folder}")))
    }
}

/// `fs/read_text_file`: the file, or some of its lines.
pub(crate) async fn read(folder: &Path, params: &Value) -> Result<Value, Error> {
    let path = inside(folder, &path_in(params)?).await?;
    let metadata = tokio::fs::metadata(&path).await.map_err(refused)?;
    if !metadata.is_file() {
        return Err(refused("not a file"));
    }
    if metadata.len() > LIMIT {
        return Err(refused(format_args!("larger than {LIMIT} bytes")));
    }
    let content = tokio::fs::read_to_string(&path).await.map_err(refused)?;
    let number = |name: &str| {
        let value = params.get(name).and_then(Value::as_u64);
        value.map(|number| usize::try_from(number).unwrap_or(usize::MAX))
    };
    let (line, limit) = (number("line"), number("limit"));
    if line.is_none() && limit.is_none() {
        return Ok(json!({ "content": content }));
    }
    // Lines are counted from 1.
    let lines = content
        .split_inclusive('\n')
        .skip(line.unwrap_or(1).saturating_sub(1));
    let lines: String = lines.take(limit.unwrap_or(usize::MAX)).collect();
    Ok(json!({ "content": lines }))
}

/// `fs/write_text_file`: makes the file or replaces what is in it.
pub(crate) async fn write(folder: &Path, params: &Value) -> Result<Value, Error> {
    let path = path_in(params)?;
    let content = params.get("content").and_then(Value::as_str);
    let content = content.ok_or_else(|| refused("expected `content`, a text"))?;
    if content.len() as u64 > LIMIT {
        return Err(refused(format_args!("larger than {LIMIT} bytes")));
    }
    let real = match tokio::fs::symlink_metadata(&path).await {
        // Something is there: a link is followed, and may lead out of the folder.
        Ok(_) => {
            let real = inside(folder, &path).await?;
            let metadata = tokio::fs::metadata(&real).await.map_err(refused)?;
            if !metadata.is_file() {
                return Err(refused("not a file"));
            }
            real
        }
        Err(_) => {
            let parent = path.parent().ok_or_else(|| refused("not a file"))?;
            let name = path.file_name().ok_or_else(|| refused("not a file"))?;
            inside(folder, parent).await?.join(name)
        }
    };
    tokio::fs::write(&real, content).await.map_err(refused)?;
    Ok(json!({}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_below_the_folder_are_read_and_written_and_no_others() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("in");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(outer.path().join("secret"), "x").unwrap();
        std::os::unix::fs::symlink(outer.path().join("secret"), folder.join("link")).unwrap();
        std::os::unix::fs::symlink(outer.path().join("new"), folder.join("dangling")).unwrap();
        let at = |name: &str| folder.join(name).display().to_string();
        let file = json!({ "path": at("a.txt"), "content": "1\n2\n3\n" });
        assert_eq!(write(&folder, &file).await.unwrap(), json!({}));
        let whole = read(&folder, &json!({ "path": at("a.txt") }))
            .await
            .unwrap();
        assert_eq!(whole["content"], "1\n2\n3\n");
        let some = json!({ "path": at("a.txt"), "line": 2, "limit": 1 });
        assert_eq!(read(&folder, &some).await.unwrap()["content"], "2\n");
        for bad in [
            at("link"),
            at("../secret"),
            at("missing"),
            at(""),
            "a.txt".into(),
        ] {
            assert!(
                read(&folder, &json!({ "path": bad })).await.is_err(),
                "{bad}"
            );
        }
        for bad in [
            at("link"),
            at("../new"),
            at("dangling"),
            at("no/where"),
            at(""),
        ] {
            let params = json!({ "path": bad, "content": "y" });
            assert!(write(&folder, &params).await.is_err(), "{bad}");
        }
        assert_eq!(
            std::fs::read_to_string(outer.path().join("secret")).unwrap(),
            "x"
        );
        assert!(!outer.path().join("new").exists());
        assert!(read(&folder, &json!({})).await.is_err());
    }
}
